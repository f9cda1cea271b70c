"""Many requests at the same time, over connections that were all open before the first was sent."""

import http.client


def burst(stack, address, path, count):
    """Responses (their headers) of so many GET requests; the connections are open until ``stack`` ends."""
    connections = [http.client.HTTPConnection(*address, timeout=30) for _ in range(count)]
    for connection in connections:
        stack.callback(connection.close)
        connection.connect()
    for connection in connections:
        connection.request("GET", path)
    responses = [connection.getresponse() for connection in connections]
    for response in responses:
        stack.callback(response.close)
    return responses
