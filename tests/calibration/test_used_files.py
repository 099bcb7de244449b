"""Which files count, told by the sources of the measurements: whole paths only, groups by their folder."""

from calibration.records import SourceFile
from calibration.used_files import used_files


def files(*paths: str) -> list[SourceFile]:
    """Files of some format."""
    return [SourceFile(path, "table", "") for path in paths]


def test_a_path_counts_where_a_source_names_it_whole() -> None:
    given = files("run.csv", "data/run.csv", "run.csv.bak", "other.csv")
    assert used_files(given, ["data/run.csv line 3"]) == ("data/run.csv",)
    assert used_files(given, ["run.csv line 3"]) == ("run.csv",)


def test_pairs_and_groups_count_with_all_their_files() -> None:
    given = files("a.txt", "b.txt", "t/rank0.json", "t/rank1.json", "u/rank0.json")
    assert used_files(given, ["a.txt -> b.txt", "t (2 ranks) (4 decoding)"]) == (
        "a.txt",
        "b.txt",
        "t/rank0.json",
        "t/rank1.json",
    )


def test_nothing_used_is_nothing() -> None:
    assert used_files(files("a.csv"), []) == ()
