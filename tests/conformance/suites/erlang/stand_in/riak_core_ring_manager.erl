%% A fresh ring has no properties of buckets: those that the tests set are reset.
-module(riak_core_ring_manager).
-export([set_my_ring/1]).

-define(BUCKETS, [<<"b">>, <<"multibucket">>, <<"counter_test_bucket">>, <<"bucket">>, <<"listkeys">>]).

set_my_ring(fresh) ->
    stand_in:with_client(fun(Client) -> [ok = riakc_pb_socket:reset_bucket(Client, B) || B <- ?BUCKETS] end),
    ok.
