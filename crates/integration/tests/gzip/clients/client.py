"""Fetches a page several times at once: URL COUNT. Prints its length and its checksum."""

import gzip
import sys
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor


def fetch(url):
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.headers["Content-Encoding"] == "gzip", response.headers
        content = gzip.decompress(response.read())
    return f"{len(content)} {zlib.crc32(content):08x}"


def main():
    url, count = sys.argv[1], int(sys.argv[2])
    with ThreadPoolExecutor(count) as pool:
        pages = list(pool.map(fetch, [url] * count))
    (page,) = set(pages)
    print(count, "pages of", page)


main()
