"""JSON Schema of models, in words that any validator understands: what `schema`, `openrpc` and `asyncapi` share."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import TaggedUnionSchema

DEFINITIONS = "#/$defs/{model}"


class _Shapes(GenerateJsonSchema):
    """Writes unions that are told apart by a member as `anyOf`.

    They are open for members of the future, so a value may fit both its own shape and the open one; and the member that
    tells them apart is written as OpenAPI wants it, which other formats refuse.
    """

    def tagged_union_schema(self, schema: TaggedUnionSchema) -> JsonSchemaValue:
        """As pydantic writes it, with the name changed."""
        written = super().tagged_union_schema(schema)
        written.pop("discriminator", None)
        return {("anyOf" if key == "oneOf" else key): value for key, value in written.items()}


def definitions_of(
    models: Iterable[type[BaseModel]], *, ref_template: str = DEFINITIONS, title: str | None = None
) -> dict[str, Any]:
    """A schema whose `$defs` hold the models, under their own names, and all that they refer to."""
    unique = [(model, "validation") for model in dict.fromkeys(models)]
    _, schema = models_json_schema(
        unique,  # type: ignore[arg-type]
        by_alias=True,
        ref_template=ref_template,
        title=title,
        schema_generator=_Shapes,
    )
    return schema
