"""The example of docs/clients.md: objects, an index query and a counter, with the client riak 2.7.0."""
import os

import riak

client = riak.RiakClient(host="127.0.0.1", pb_port=int(os.environ.get("PB_PORT", "8087")))

# An object with an index entry.
people = client.bucket("people")
ann = people.new("ann", data={"name": "Ann", "age": 42})
ann.add_index("age_int", 42)
ann.store()

# Read, change, store: the client sends back the version that it has read.
ann = people.get("ann")
ann.data["age"] = 43
ann.set_index("age_int", 43)
ann.store()
print("stored:", people.get("ann").data["age"])

# An index query, with the terms beside the keys.
print("found:", people.get_index("age_int", 18, 65, return_terms=True).results)

# A counter, in a bucket type of that data type.
home = client.bucket_type("counters").bucket("pages").new("home")
home.increment(5)
home.store()
home.reload()
print("counted:", home.value)

client.close()
