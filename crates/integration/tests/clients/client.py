"""Fetches / over TLS on several connections at once: PORT AUTHORITY VERSION CONNECTIONS."""

import http.client
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def fetch(port, authority, version):
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = context.maximum_version = VERSIONS[version]
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
    connection.request("GET", "/")
    response = connection.getresponse()
    body = response.read().decode()
    negotiated = connection.sock.version()
    connection.close()
    assert (response.status, body) == (200, negotiated), (response.status, body)
    assert negotiated == "TLSv" + version, negotiated


def main():
    port, authority, version, connections = sys.argv[1:]
    with ThreadPoolExecutor(int(connections)) as pool:
        jobs = [pool.submit(fetch, int(port), authority, version) for _ in range(int(connections))]
    for job in jobs:
        job.result()
    print(len(jobs), "served")


main()
