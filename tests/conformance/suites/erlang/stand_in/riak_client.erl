%% Puts by the client inside the node.
-module(riak_client).
-export([put/3]).

put(Object, Written, client) ->
    stand_in:with_client(fun(Client) -> riakc_pb_socket:put(Client, Object, [{w, Written}]) end).
