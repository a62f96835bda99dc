"""Prices of Claude models as data: list prices in USD per million tokens, as of 2026-11-20.

Source: platform.claude.com/docs/en/about-claude/pricing. Writing to the five-minute cache costs 1.25 times the
input price; reading from it costs the share given here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_CACHE_WRITE = 1.25
_PER_MILLION = 1e-6
_CHARS_PER_TOKEN = 3
_DATE_SUFFIX = re.compile(r"-20\d{6}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD per million tokens. `cache_read` is a share of `input`; `effort` says that the model takes an effort.

    A prompt of more than `long_prompt_tokens` multiplies the price by `long_prompt_factor`.
    """

    input: float
    output: float
    cache_read: float = 0.1
    effort: bool = True
    long_prompt_tokens: int = 100_000
    long_prompt_factor: float = 1.0


PRICES: Mapping[str, Price] = {
    "claude-haiku-5-5": Price(input=0.1, output=0.5, long_prompt_factor=5.0),
    "claude-sonnet-5-5": Price(input=2, output=10, cache_read=0.05),
    "claude-opus-5-5": Price(input=4, output=20, cache_read=0.05),
    "claude-fable-5-1": Price(input=10, output=50, cache_read=0.025),
    "claude-fable-5": Price(input=10, output=50),
    "claude-sonnet-5": Price(input=2, output=10),
    "claude-opus-5": Price(input=5, output=25),
    "claude-opus-4-8": Price(input=5, output=25),
    "claude-opus-4-7": Price(input=5, output=25),
    "claude-opus-4-6": Price(input=5, output=25),
    "claude-opus-4-5": Price(input=5, output=25),
    "claude-opus-4-1": Price(input=15, output=75, effort=False),
    "claude-sonnet-4-6": Price(input=3, output=15),
    "claude-sonnet-4-5": Price(input=3, output=15, effort=False),
    "claude-haiku-4-5": Price(input=1, output=5, effort=False),
}

_DEAREST = max(PRICES.values(), key=lambda price: price.output)


def price_of(model: str) -> Price | None:
    """Return the price of a model by its id, with or without a date at its end; None for one that is not listed."""
    return PRICES.get(_DATE_SUFFIX.sub("", model))


def takes_effort(model: str) -> bool:
    """Return whether `output_config.effort` may be sent; a model that is not listed might refuse it."""
    price = price_of(model)
    return price is not None and price.effort


def cost_usd(model: str, tokens: Mapping[str, int]) -> float:
    """Return the cost of a call from the token counts of its reply; an unknown model counts as the dearest one."""
    price = price_of(model) or _DEAREST
    written, cached = tokens["cache_creation_input_tokens"], tokens["cache_read_input_tokens"]
    read = tokens["input_tokens"] + _CACHE_WRITE * written + price.cache_read * cached
    prompt_tokens = tokens["input_tokens"] + written + cached
    factor = price.long_prompt_factor if prompt_tokens > price.long_prompt_tokens else 1.0
    return factor * _PER_MILLION * (price.input * read + price.output * tokens["output_tokens"])


def estimate_cost_usd(model: str, text: str, *, max_output_tokens: int) -> float:
    """Return the most that a call with this text can cost, before it is made.

    Three characters a token, and one for each that is not ASCII: newer models make some 30 % more tokens of a text
    than the usual four characters each. All of it is counted as written to the cache.
    """
    ascii_chars = len(text.encode("ascii", "ignore"))
    prompt_tokens = -(-ascii_chars // _CHARS_PER_TOKEN) + len(text) - ascii_chars
    return cost_usd(
        model,
        {
            "input_tokens": 0,
            "output_tokens": max_output_tokens,
            "cache_creation_input_tokens": prompt_tokens,
            "cache_read_input_tokens": 0,
        },
    )
