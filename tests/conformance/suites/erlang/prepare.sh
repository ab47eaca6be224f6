#!/usr/bin/env bash
# Compiles the compiler of protocol buffers, the messages, and the client with its tests.
set -euo pipefail
(
  cd gpb
  sed 's/"@vsn@"/"0"/; s/"@vsn-source@"/"x"/' include/gpb_version.hrl.in >include/gpb_version.hrl
  mkdir -p ebin
  options="-I include -o ebin -pa ebin -DNO_HAVE_PLUS_MINUS_ZERO_FLOAT"
  # Two modules transform each other: the first compilation of one ends with a complaint.
  erlc $options src/gpb_lib.erl src/gpb_codemorpher.erl || true
  erlc $options src/gpb_codegen.erl
  erlc $options src/gpb_codemorpher.erl src/gpb_codegen.erl
  erlc $options src/*.erl
)
(
  cd riak_pb
  mkdir -p ebin
  erl -noshell -pa ../gpb/ebin -eval "$(cat "$SUITE/messages.erl_eval")"
  erlc -Dnamespaced_types -I include -I src -I ../gpb/include -o ebin src/*.erl
  cp src/riak_pb.app.src ebin/riak_pb.app
)
(
  cd riakc
  mkdir -p ebin
  ERL_LIBS=.. erlc -Dnamespaced_types -DTEST -I include -o ebin src/*.erl test/*.erl
  cp src/riakc.app.src ebin/riakc.app
)
# The tests read the version of the server from the name of its release.
erl -noshell -eval '
  Version = fun(App) -> application:load(App), {ok, V} = application:get_key(App, vsn), {App, V} end,
  Release = {release, {"riak", "3.2.0"}, {erts, erlang:system_info(version)}, [Version(kernel), Version(stdlib)]},
  ok = file:write_file("riak.rel", io_lib:format("~p.~n", [Release])),
  {ok, _, _} = systools:make_script("riak", [silent]), halt().'
