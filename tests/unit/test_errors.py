from app import errors
from app.errors import MnemeError
from tests.support.tables import each_of


def tree(base: type[MnemeError]) -> list[type[MnemeError]]:
    return [base] + [
        found for each in base.__subclasses__() if each.__module__ == errors.__name__ for found in tree(each)
    ]


@each_of("kind", tree(MnemeError))
def test_every_error_has_openais_shape_and_a_message_of_its_own(kind: type[MnemeError]) -> None:
    error = kind(param="user", code="why")
    assert error.body() == {"error": {"message": error.message, "type": kind.type, "param": "user", "code": "why"}}
    assert error.message.endswith((".", "again"))
    assert "\n" not in error.message
    assert 400 <= kind.status < 600


def test_a_given_message_takes_the_place_of_the_default() -> None:
    assert str(MnemeError("No.")) == "No."


def test_the_tree_at_the_top_of_the_module_names_every_error() -> None:
    drawn = errors.__doc__ or ""
    for kind in tree(MnemeError):
        line = next((line for line in drawn.splitlines() if f" {kind.__name__} " in f"{line} ".replace("─", " ")), "")
        assert str(kind.status) in line, kind.__name__
