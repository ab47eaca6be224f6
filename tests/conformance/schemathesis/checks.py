"""A check beside those of schemathesis: the reason of a 500 is one that a client can bring about.

The description has 500 for stores that fail and for rules of the server that are broken. Neither
happens to a server whose disk is well.
"""

import schemathesis

DEFECTS = (b"Error:\ninternal:", b"Error:\nstorage:", b"Error:\nthe cluster state cannot")


@schemathesis.check
def reason_of_500(context, response, case):
    if response.status_code == 500 and response.content.startswith(DEFECTS):
        raise AssertionError("a defect: %r" % response.content[:200])
