"""A cursor over the tokens of one statement."""

from __future__ import annotations

from tocsin.errors import SqlInvalid
from tocsin.model.catalogue import NAME_MAX, is_name
from tocsin.pipeline.language.names import nearest
from tocsin.pipeline.language.text.lexer import Token, blanked


class Reader:
    """``text`` is the whole script's; ``pieces`` are the statement's tokens."""

    def __init__(self, text: str, pieces: list[Token]) -> None:
        self.text = text
        self._pieces = [*pieces, Token("end", "", pieces[-1].end)]
        self._index = 0

    def peek(self, ahead: int = 0) -> Token:
        return self._pieces[min(self._index + ahead, len(self._pieces) - 1)]

    def take(self) -> Token:
        token = self.peek()
        self._index = min(self._index + 1, len(self._pieces) - 1)
        return token

    def wrong(self, token: Token, problem: str, remedy: str) -> SqlInvalid:
        return SqlInvalid(self.text, token.at, problem, remedy)

    def accept(self, *words: str) -> bool:
        """Take the word if it is one of these."""
        if self.peek().is_word(*words):
            self.take()
            return True
        return False

    def accept_symbol(self, symbol: str) -> bool:
        if self.peek().is_symbol(symbol):
            self.take()
            return True
        return False

    def expect(self, *words: str) -> Token:
        return self._expect(words)

    def one_of(self, *words: str) -> str:
        """The word, in capitals, which is one of these."""
        return self._expect(words).text.upper()

    def _expect(self, words: tuple[str, ...]) -> Token:
        token = self.peek()
        if not token.is_word(*words):
            near = nearest(token.text, words) if token.kind == "word" and len(words) > 1 else None
            remedy = f"did you mean {near}?" if near else f"write {' or '.join(words)} here"
            raise self.wrong(token, f"{token.shown()} stands where {' or '.join(words)} is expected", remedy)
        return self.take()

    def expect_symbol(self, symbol: str) -> Token:
        token = self.peek()
        if not token.is_symbol(symbol):
            raise self.wrong(
                token, f"{token.shown()} stands where {symbol} is expected", f"write {symbol} here"
            )
        return self.take()

    def name(self, what: str) -> str:
        """The name of a definition or column, with or without backticks."""
        token = self.take()
        name = token.text.strip("`") if token.kind == "name" else token.text
        if token.kind not in ("word", "name") or not is_name(name):
            raise self.wrong(
                token,
                f"{token.shown()} is no name of a {what}",
                f"names begin with a letter and have at most {NAME_MAX} letters, digits and _",
            )
        return name

    def string(self, what: str, example: str) -> str:
        """The value of a string."""
        token = self.take()
        if token.kind != "string":
            raise self.wrong(token, f"{token.shown()} is no {what}", f"write it in quotes, as {example}")
        if "\\" in token.text:
            raise self.wrong(token, f"a {what} has no backslashes", "leave them out")
        return token.text[1:-1].replace(token.text[0] * 2, token.text[0])

    def number(self, what: str) -> float:
        token = self.take()
        if token.kind != "number":
            raise self.wrong(token, f"{token.shown()} is no number of {what}", "write a number, such as 10")
        return float(token.text)

    def since(self, token: Token) -> str:
        """The text from this token up to here."""
        end = self._pieces[self._index - 1].end
        return self.text[token.at : end]

    def until(self, stop: int) -> list[Token]:
        """Take the tokens up to an index."""
        found = self._pieces[self._index : stop]
        self._index = stop
        return found

    @property
    def index(self) -> int:
        return self._index

    def rest(self) -> str:
        """The rest of the text, with blanks for comments: positions stay."""
        pieces = self._pieces[self._index : -1]
        self._index = len(self._pieces) - 1
        return blanked(self.text, pieces, set())

    def whole(self) -> str:
        """The statement as it was written."""
        return self.text[self._pieces[0].at : self._pieces[-1].end]

    def end(self) -> None:
        token = self.peek()
        if token.kind != "end":
            raise self.wrong(token, f"{token.shown()} is too much here", "end the statement with ;")
