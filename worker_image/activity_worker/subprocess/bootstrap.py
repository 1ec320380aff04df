"""The first file of a child, run by its path with the Python interpreter of the handler's environment.

    python -P -u bootstrap.py SOCKET_FD FLAG_FD module:function SUPERVISOR_PID PYTHONPATH

That environment need not have this project: the package is loaded from where this file lies, before anything of the
user's can be imported. So the user's files and libraries can take the place of neither this package nor the standard
library: the user's folders come after the standard library, and before installed libraries.

A `multiprocessing` child that is spawned runs this file again under another name, and finds the package the same way.
"""

import importlib.util
import os
import sys

_PACKAGE = "activity_worker"
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib would be 5 ms


def load_package() -> None:
    """Import this project's package from its folder, without an entry in `sys.path`."""
    if _PACKAGE in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        _PACKAGE,
        os.path.join(_FOLDER, "__init__.py"),  # noqa: PTH118 - as above
        submodule_search_locations=[_FOLDER],
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"the package {_PACKAGE} is not in {_FOLDER}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = module
    spec.loader.exec_module(module)


def add_user_folders(python_path: str) -> None:
    """Add the working directory and the folders of `python_path` behind the standard library.

    Put the variable `PYTHONPATH` back, too: the supervisor leaves it out of this process's environment.
    """
    folders = [os.getcwd(), *(folder for folder in python_path.split(os.pathsep) if folder)]  # noqa: PTH109 - as above
    if python_path:
        os.environ["PYTHONPATH"] = python_path
    library = os.path.dirname(os.__file__)  # noqa: PTH120 - as above
    own = {library, os.path.join(library, "lib-dynload")}  # noqa: PTH118 - as above
    position = 1 + max((index for index, entry in enumerate(sys.path) if entry in own), default=-1)
    sys.path[position:position] = [folder for folder in dict.fromkeys(folders) if folder not in sys.path]


load_package()

if __name__ == "__main__":
    from activity_worker.subprocess.main import main

    add_user_folders(sys.argv[5])
    sys.exit(main())
