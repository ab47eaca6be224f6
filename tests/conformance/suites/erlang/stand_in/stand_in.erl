%% A node that stands in for the Riak node that the client's tests call in Erlang's own way: it does by the client
%% what they ask for. The other modules here have the names of Riak's that they call.
-module(stand_in).
-export([start/0, with_client/1]).

start() ->
    application:set_env(riak_kv, storage_backend, riak_kv_memory_backend),
    application:set_env(riak_kv, test, true),
    {ok, Listener} = gen_event:start(),
    supervise(riak_api_sup, [{listener, Listener, worker, [riak_api_pb_listener]}]),
    supervise(riak_api_pb_sup, []),
    ok = file:write_file("stand_in_is_ready", <<>>).

%% A process that answers as a supervisor of these children.
supervise(Name, Children) ->
    Pid = spawn(fun() -> answer(Children) end),
    register(Name, Pid).

answer(Children) ->
    receive
        {'$gen_call', From, which_children} -> gen_server:reply(From, Children)
    end,
    answer(Children).

with_client(Action) ->
    {ok, Client} = riakc_pb_socket:start("127.0.0.1", list_to_integer(os:getenv("RIAK_TEST_PBC_1"))),
    Result = Action(Client),
    riakc_pb_socket:stop(Client),
    Result.
