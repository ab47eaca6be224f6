%% Objects as Riak stores them: what is not binary becomes a term in Erlang's external form.
-module(riak_object).
-export([new/3]).

new(Bucket, Key, Value) when is_binary(Value) ->
    riakc_obj:new(Bucket, Key, Value);
new(Bucket, Key, Term) ->
    riakc_obj:new(Bucket, Key, term_to_binary(Term), <<"application/x-erlang-binary">>).
