"""Long values in messages."""

from albert_tf.runtime.errors import listed, shortened


def test_long_lists_are_shortened():
    names = [f"n{i}" for i in range(1500)]
    assert listed(names[:10]) == "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9"
    assert listed(names, 2) == "n0, n1 and 1,498 more"
    assert shortened(("a", "b")) == "('a', 'b')" and shortened("ab") == "'ab'"
    assert shortened(names[:11]) == (
        "('n0', 'n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7', 'n8', 'n9' and 1 more)"
    )
