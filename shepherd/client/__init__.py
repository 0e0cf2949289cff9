"""Documents from a server of somebody's database, in a few lines (docs/serve.md):

    documents = pull("http://127.0.0.1:8731", token, since=12)
    for document in documents:
        if document.is_gone:
            forget(document.footprint)
        else:
            index(document.footprint, document.url, document.body())
    remember(documents.state)  # to ask what is new since, the next time

`Server` has the single calls: states, leases, files, feedback. Errors are those of shepherd.errors: PeerLost where the server
does not answer, PeerRefused where it will not have us, UsageError where we ask for what is not there, Corruption where bytes are
damaged.
"""

from shepherd.client.document import Document
from shepherd.client.pull import Pull, feedback, pull
from shepherd.client.server import FileAnswer, Server, ServerFile, ServerLease

__all__ = ["Document", "FileAnswer", "Pull", "Server", "ServerFile", "ServerLease", "feedback", "pull"]
