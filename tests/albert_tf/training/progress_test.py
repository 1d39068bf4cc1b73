"""Tests of what is printed while a task runs."""

from albert_tf.training.progress import printing_if


def test_only_the_chief_of_several_workers_prints(capsys):
    for is_chief in (True, False):
        with printing_if(is_chief):
            print(f"chief: {is_chief}")
    print("after")
    assert capsys.readouterr().out == "chief: True\nafter\n"
