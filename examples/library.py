"""A small library: search it, read in it, hold a book, have its stock counted, and let it suggest something.

`make dev` serves it. Start your own application from it. Each tool is a typed function with a docstring. Its parameters
become the input schema that clients see, and its return type becomes the output schema. Books are resources too, and a
review is a prompt.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import anyio
from pydantic import BaseModel, Field

from mcpfleet.app import App, Context, Resource, ToolAnnotations, ToolError

app = App(
    "library",
    version="1.0.0",
    title="A small library",
    instructions="Search first: reading a book and holding it take the number that a search gives.",
)

READS = ToolAnnotations(read_only_hint=True)

SHELF = 3
"""Books on a shelf."""
COUNTING = 0.7
"""Seconds that counting a shelf takes."""

log = logging.getLogger("library")

BookNumber = Annotated[int, Field(ge=1, description="The book's number, from `search`.")]


@dataclass(frozen=True)
class Book:
    """A book as the library keeps it."""

    title: str
    author: str
    year: int
    pages: list[str]


@dataclass(frozen=True)
class Found:
    """A book that a search found."""

    book: int
    title: str
    author: str
    year: int


@dataclass(frozen=True)
class Page:
    """A page of a book."""

    title: str
    page: int
    of: int
    text: str


@dataclass(frozen=True)
class Hold:
    """A book that is kept for a reader."""

    book: int
    title: str
    reader: str
    until: dt.date


@dataclass(frozen=True)
class Report:
    """The size of the library."""

    books: int
    words: int
    held: int
    oldest: str


STOCK = Path(__file__).with_name("library_books.toml")
BOOKS = {
    number: Book(**fields) for number, fields in enumerate(tomllib.loads(STOCK.read_text("utf-8"))["books"], start=1)
}

holds: dict[int, Hold] = {}
"""In the memory of one worker: they end with it, and a second worker has its own."""


@app.tool(annotations=READS)
async def search(
    query: Annotated[str, Field(min_length=1, max_length=100, description="A part of a title or an author's name.")],
    limit: Annotated[int, Field(ge=1, le=30, description="How many books at most.")] = 10,
) -> list[Found]:
    """Find books by title or author, case aside."""
    wanted = query.casefold()
    found = (
        Found(number, book.title, book.author, book.year)
        for number, book in BOOKS.items()
        if wanted in book.title.casefold() or wanted in book.author.casefold()
    )
    return list(itertools.islice(found, limit))


@app.tool(annotations=READS)
def read_book(book: BookNumber, page: Annotated[int, Field(ge=1, description="Counted from 1.")] = 1) -> Page:
    """Read one page of a book's opening."""
    # A plain function runs in a thread, so it may read files or a database without delaying other calls.
    opened = find(book)
    if page > len(opened.pages):
        raise ToolError(f"{opened.title!r} has {len(opened.pages)} pages here.")
    return Page(opened.title, page, len(opened.pages), opened.pages[page - 1])


@app.tool(annotations=ToolAnnotations(destructive_hint=False), idempotency_key="request_id")
async def place_hold(
    book: BookNumber,
    reader: Annotated[str, Field(min_length=1, max_length=60, description="Who the book is kept for.")],
    weeks: Annotated[int, Field(ge=1, le=8, description="How long it is kept.")] = 2,
    request_id: Annotated[str, Field(max_length=100, description="The same for each try.")] = "",  # noqa: ARG001  # the key
) -> Hold:
    """Keep a book for a reader. Repeated with the same request_id, it answers as it did first, and holds nothing again.

    Holds are kept in memory alone: they are gone when the library restarts.
    """
    held = find(book)
    today = dt.datetime.now(dt.UTC).date()
    if book in holds and holds[book].until >= today:
        raise ToolError(f"{held.title!r} is held until {holds[book].until}.")
    # There is no `await` between the check and the change, so no other call comes between.
    holds[book] = Hold(book, held.title, reader, today + dt.timedelta(weeks=weeks))
    return holds[book]


@app.tool(annotations=READS)
async def report(ctx: Context) -> Report:
    """Count the stock, shelf by shelf. This takes about seven seconds, and tells its progress."""
    books = list(BOOKS.values())
    shelves = [books[start : start + SHELF] for start in range(0, len(books), SHELF)]
    words = 0
    with ctx.cancelled.on_cancel(lambda: log.info("the report was cancelled: nobody waits for it")):
        for counted, shelf in enumerate(shelves):
            await ctx.progress(counted, total=len(shelves), message=f"counting shelf {counted + 1}")
            await anyio.sleep(COUNTING)
            if ctx.cancelled:
                raise ToolError(f"Stopped after {counted} of {len(shelves)} shelves.")
            words += sum(len(page.split()) for book in shelf for page in book.pages)
        await ctx.progress(len(shelves), total=len(shelves), message="done")
    oldest = min(books, key=lambda book: book.year)
    return Report(len(books), words, len(holds), f"{oldest.title} ({oldest.year})")


class Wish(BaseModel):
    """The form that `take_stock` shows before its report."""

    with_titles: bool = Field(False, description="Name the longest book of each shelf too.")


async def count(shelf: int) -> int:
    """Count the words on a shelf."""
    await anyio.sleep(COUNTING)
    books = list(BOOKS.values())[shelf * SHELF : (shelf + 1) * SHELF]
    return sum(len(page.split()) for book in books for page in book.pages)


@app.tool(annotations=READS, task="required", retention=86_400)
async def take_stock(ctx: Context) -> list[str]:
    """Count every shelf as a durable task: it outlives this process, and asks in between what the report shall say."""
    shelves = -(-len(BOOKS) // SHELF)
    words = []
    for shelf in range(shelves):
        await ctx.progress(shelf, total=shelves, message=f"counting shelf {shelf + 1}")
        # A step runs once: another worker that continues the task gets its stored result.
        words.append(await ctx.step("count", count, shelf))
    # No process waits for the answer. With it this function runs again from its top, without counting again.
    wish = await ctx.elicit("How shall the report look?", Wish, key="look")
    books = list(BOOKS.values())
    longest = [max(books[n * SHELF : (n + 1) * SHELF], key=lambda book: len(book.pages)) for n in range(shelves)]
    titles = [f", most of them in {book.title}" if wish.with_titles else "" for book in longest]
    return [f"Shelf {n + 1}: {words[n]} words{titles[n]}" for n in range(shelves)]


class Taste(BaseModel):
    """The form that `suggest` shows. A form is flat."""

    century: Literal["18th", "19th", "20th"] = Field("19th", description="When it was first printed.")
    is_short: bool = Field(False, description="Only what is read in a moment here.")


@app.tool(annotations=READS)
async def suggest(ctx: Context) -> list[Found]:
    """Suggest books, after asking the reader what they like."""
    # A client without forms is refused before this runs. If the reader declines, the call ends, and the model reads so.
    taste = await ctx.elicit("What would you like to read?", Taste, key="taste")
    first = {"18th": 1700, "19th": 1800, "20th": 1900}[taste.century]
    return [
        Found(number, book.title, book.author, book.year)
        for number, book in BOOKS.items()
        if first <= book.year < first + 100 and (len(book.pages) == 1 or not taste.is_short)
    ][:SHELF]


@app.resource("library://books/{book}", title="A book's opening", ttl=300)
def opening(book: int) -> str | None:
    """All pages that the library has of a book."""
    # None means that this URI does not exist. A `book` that is not a number does not exist either.
    return "\n\n".join(BOOKS[book].pages) if book in BOOKS else None


@app.completion(opening, "book")
async def numbers(typed: str) -> list[str]:
    """Offer the numbers that begin with the typed text."""
    return [str(number) for number in BOOKS if str(number).startswith(typed)]


@app.resources()
async def shelf() -> list[Resource]:
    """List every book as a resource: the template alone does not name them."""
    return [
        Resource(uri=f"library://books/{number}", name=f"book-{number}", title=book.title, mime_type="text/plain")
        for number, book in BOOKS.items()
    ]


@app.prompt(title="Review a book")
def review(
    title: Annotated[str, Field(description="The book's title.")],
    words: Annotated[int, Field(ge=50, le=1000, description="How long the review is.")] = 200,
) -> str:
    """Write a review of a book."""
    return f"Write a review of {title!r} in about {words} words. Say who will like it, and spoil nothing."


@app.completion(review, "title")
async def titles(typed: str) -> list[str]:
    """Offer the titles that contain the typed text, ignoring case."""
    return [book.title for book in BOOKS.values() if typed.casefold() in book.title.casefold()]


def find(number: int) -> Book:
    """Look a book up, or tell the model how to find one."""
    if number not in BOOKS:
        raise ToolError(f"There is no book {number}: search for a title or an author first.")
    return BOOKS[number]
