"""Sessions of browsers, and the codes that begin them."""

from __future__ import annotations

from holdfast.dashboard.sessions import CODE_S, MOST_CODES, MOST_PER_TOKEN, MOST_SESSIONS, BrowserSessions


class Time:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_code_works_once_and_not_for_long() -> None:
    time = Time()
    sessions = BrowserSessions(time, 3600)
    code, late = sessions.code("t", read_only=True), sessions.code("t", read_only=False)
    found = sessions.redeem(code)
    assert found is not None
    assert (found.token, found.read_only) == ("t", True)
    assert sessions.redeem(code) is None
    time.now_s += CODE_S
    assert sessions.redeem(late) is None
    assert sessions.redeem("made up") is None


def test_a_session_ends_by_itself_and_by_its_user() -> None:
    time = Time()
    sessions = BrowserSessions(time, 3600)
    one, two = sessions.begin("t", read_only=False), sessions.begin("t", read_only=False)
    assert one != two
    sessions.end(one)
    assert (sessions.find(one), sessions.find("")) == (None, None)
    assert sessions.find(two) is not None
    time.now_s += 3600
    assert sessions.find(two) is None


def test_the_oldest_of_a_token_make_room() -> None:
    sessions = BrowserSessions(Time(), 3600)
    other = sessions.begin("other", read_only=False)
    mine = [sessions.begin("t", read_only=False) for _ in range(MOST_PER_TOKEN + 3)]
    assert [sessions.find(s) is None for s in mine] == [True] * 3 + [False] * MOST_PER_TOKEN
    assert sessions.find(other) is not None


def test_their_number_is_bounded() -> None:
    sessions = BrowserSessions(Time(), 3600)
    first = sessions.begin("0", read_only=False)
    kept = [sessions.begin(str(number), read_only=False) for number in range(1, MOST_SESSIONS + 1)]
    assert sessions.find(first) is None
    assert all(sessions.find(s) for s in kept)
    codes = [sessions.code(str(number), read_only=False) for number in range(MOST_CODES + 1)]
    assert sessions.redeem(codes[0]) is None
    assert sessions.redeem(codes[1]) is not None


def test_a_token_without_end_ends_no_code_and_no_session_of_another() -> None:
    sessions = BrowserSessions(Time(), 3600)
    code, session = sessions.code("op", read_only=False), sessions.begin("op", read_only=False)
    for _ in range(MOST_CODES):
        sessions.code("user", read_only=False)
    for number in range(2 * MOST_SESSIONS):
        sessions.begin(f"user {number % 100}", read_only=False)
    assert sessions.find(session) is not None
    assert sessions.redeem(code) is not None
