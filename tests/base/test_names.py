"""Names and numbers as people read them."""

import pytest

from dstl_cli.base.names import display_number


@pytest.mark.parametrize(
    ("value", "digits", "told"),
    [
        (9.04, 2, "9"),
        (8.31, 2, "8.3"),
        (206.4, 2, "210"),
        (206.4, 3, "206"),
        (14321.0, 2, "14000"),
        (15432.0, 3, "15400"),
        (0.0, 3, "0"),
        (0.0612, 2, "0.061"),
        (1.4e-9, 2, "1.4e-09"),
        (2.5e8, 3, "2.5e+08"),
    ],
)
def test_numbers_have_few_digits_and_no_exponent_where_a_person_has_none(value: float, digits: int, told: str) -> None:
    assert display_number(value, digits) == told
