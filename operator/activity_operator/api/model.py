"""The base of every model of the resource: immutable, snake_case in Python, camelCase in YAML."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """The base of the frozen models. Unknown fields, of newer versions of the CRD, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


#: An integer that the API server stores as int32: every count and duration.
Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
#: An integer that the API server stores as int64: generations.
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
