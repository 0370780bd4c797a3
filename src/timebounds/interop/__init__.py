"""Ready-made parts that put a whole exchange of other people's clients under one deadline.

One module a client, which imports it: `http_client` (http.client and urllib.request), `urllib3`,
`requests`, `httpx`. What is asked inside `with bounding(deadline):` obeys that deadline: lookup,
every address, the TLS handshake, each send and read. Without a block the clients are as ever, but
for their own connect timeout, which then bounds lookup and all addresses together.
"""
