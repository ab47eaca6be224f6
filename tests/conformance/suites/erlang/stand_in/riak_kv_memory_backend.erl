%% Empties the server: deletes all keys of the types that the tests use.
-module(riak_kv_memory_backend).
-export([reset/0]).

-define(TYPES, [<<"default">>, <<"sets">>, <<"maps">>, <<"hlls">>, <<"gset_bucket">>]).

reset() ->
    stand_in:with_client(fun(Client) -> [empty(Client, Type) || Type <- ?TYPES] end),
    %% Tombstones are reaped meanwhile: one would be a sibling of what the next test puts.
    timer:sleep(1000),
    ok.

empty(Client, Type) ->
    {ok, Buckets} = riakc_pb_socket:list_buckets(Client, Type),
    [delete_all(Client, named(Type, Bucket)) || Bucket <- Buckets].

named(<<"default">>, Bucket) -> Bucket;
named(Type, Bucket) -> {Type, Bucket}.

delete_all(Client, Bucket) ->
    {ok, Keys} = riakc_pb_socket:list_keys(Client, Bucket),
    [ok = riakc_pb_socket:delete(Client, Bucket, Key) || Key <- Keys].
