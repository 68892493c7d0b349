"""One document from one http(s) address, never from a private one.

The address of the connection itself is checked: names are resolved here, each of their addresses is checked, and the
connection goes to one of those. Neither a name that changes a moment later nor an unusual notation (`0x7f.1`,
`2130706433`) can therefore bypass the check. A redirect is a new address, checked likewise. No proxy is used, because it
would connect to unchecked addresses.
"""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from uuid import uuid4

import httpcore

from rag_app.domain import Misconfigured, UnreadableDocument
from rag_app.http.bodies import ReceivedFile, file_name

Address = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]

_REDIRECTIONS = 5
_SECONDS = 30.0
_SECONDS_OF_SILENCE = 10.0
_LONGEST = 2000  # characters of an address
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ip_network("::/96")


class _NotPublic(Exception):
    """A name has a private address."""


def networks(said: str) -> Networks:
    """The networks in a comma-separated list. Raises Misconfigured with an invalid one.

    >>> networks("10.1.0.0/16, ::1")
    (IPv4Network('10.1.0.0/16'), IPv6Network('::1/128'))
    """
    found = []
    for each in filter(None, map(str.strip, said.split(","))):
        try:
            found.append(ip_network(each))
        except ValueError:
            raise Misconfigured(f"RAG_URL_NETWORKS: {each!r} is not a network: write it as 10.1.0.0/16") from None
    return tuple(found)


def is_public(address: Address, allowed: Networks = ()) -> bool:
    """Whether the address, and the IPv4 address embedded in it, is public or in an allowed network.

    >>> [is_public(ip_address(each)) for each in ("93.184.215.14", "2606:2800:21f:cb07::1")]
    [True, True]
    >>> private = ("10.0.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::")
    >>> any(is_public(ip_address(each)) for each in private)
    False
    """
    if any(address.version == each.version and address in each for each in allowed):
        return True
    if isinstance(address, IPv6Address):
        if inner := _inner(address):
            return is_public(inner, allowed)
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address embedded in an IPv6 address."""
    if any(address in each for each in _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    _, client = address.teredo or (None, None)
    return address.ipv4_mapped or address.sixtofour or client


class _PublicNetwork(httpcore.AsyncNetworkBackend):
    """Connects to public addresses only."""

    def __init__(self, allowed: Networks) -> None:
        self._allowed, self._connect = allowed, httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError("there is no such host") from error
        addresses = list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))
        if not addresses or not all(is_public(ip_address(each), self._allowed) for each in addresses):
            raise _NotPublic
        *others, last = addresses
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._connect.connect_tcp(address, port, timeout, local_address, socket_options)
        return await self._connect.connect_tcp(last, port, timeout, local_address, socket_options)


async def fetch(url: str, folder: Path, most: int, allowed: Networks = ()) -> tuple[str, ReceivedFile]:
    """Read one document of at most `most` bytes into a file below `folder`; the address that had it after redirects, and
    the file. No link in it is followed.

    Raises UnreadableDocument with a reason that reveals nothing about private addresses.
    """
    try:
        async with (
            asyncio.timeout(_SECONDS),
            httpcore.AsyncConnectionPool(network_backend=_PublicNetwork(allowed)) as pool,
        ):
            at = url
            for _ in range(_REDIRECTIONS + 1):
                found = await _get(pool, _check_url(at), folder, most)
                if isinstance(found, ReceivedFile):
                    return _check_url(at), found
                at = urljoin(at, found)
    except _NotPublic:
        raise UnreadableDocument(url, "leads to an address that is not public") from None
    except (TimeoutError, httpcore.TimeoutException):
        raise UnreadableDocument(url, f"did not send a complete response within {_SECONDS:.0f} seconds") from None
    except (httpcore.NetworkError, httpcore.ProtocolError, OSError, ValueError) as error:
        raise UnreadableDocument(url, f"cannot be read: {type(error).__name__}") from None
    raise UnreadableDocument(url, f"redirects more than {_REDIRECTIONS} times")


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or len(url) > _LONGEST:
        raise UnreadableDocument(url[:_LONGEST], "is not an http or https URL")
    if parts.username or parts.password:
        raise UnreadableDocument(
            parts.hostname, "must not contain a user name or a password, because the URLs of sources are shown"
        )
    if not url.isascii() or any(each <= " " for each in url):
        raise UnreadableDocument(url, "contains characters that must be percent-encoded")
    return parts._replace(fragment="").geturl()


async def _get(pool: httpcore.AsyncConnectionPool, url: str, folder: Path, most: int) -> ReceivedFile | str:
    """The document, or the address it redirects to."""
    headers = [
        ("Host", urlsplit(url).netloc),
        ("User-Agent", "rag-app"),
        ("Accept", "*/*"),
        ("Accept-Encoding", "identity"),
    ]
    silence = dict.fromkeys(("connect", "read", "write", "pool"), _SECONDS_OF_SILENCE)
    async with pool.stream("GET", url, headers=headers, extensions={"timeout": silence}) as answer:
        said = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
        if answer.status in (301, 302, 303, 307, 308) and "location" in said:
            return said["location"]
        if answer.status != 200:
            raise UnreadableDocument(url, f"answers with status {answer.status}")
        if said.get("content-encoding", "identity").lower() != "identity":
            raise UnreadableDocument(
                url, f"uses the encoding {said['content-encoding'][:50]!r}, which was not requested"
            )
        path, taken = folder / uuid4().hex, 0
        with path.open("xb") as file:
            async for piece in answer.aiter_stream():
                taken += len(piece)
                if taken > most:
                    raise UnreadableDocument(url, f"is larger than {most / 1_000_000:,.0f} MB (RAG_UPLOAD_MEGABYTES)")
                file.write(piece)
    return ReceivedFile(file_name(unquote(urlsplit(url).path)), said.get("content-type", "text/html"), path)
