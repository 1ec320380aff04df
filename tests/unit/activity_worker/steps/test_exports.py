"""What `activity_worker.steps` exports."""

import subprocess
import sys

from activity_worker import steps


def test_every_exported_name_can_be_imported() -> None:
    assert [name for name in steps.__all__ if getattr(steps, name).__name__ != name] == []
    assert sorted(steps.__all__) == sorted(steps._MODULE_OF)


def test_import_of_the_package_loads_no_database_library() -> None:
    code = "import sys, activity_worker.steps; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
