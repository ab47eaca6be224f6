%% A client inside the node: any term will do.
-module(riak).
-export([local_client/0]).

local_client() -> {ok, client}.
