module github.com/basho/riak-go-client

go 1.16

require (
	github.com/basho/backoff v0.0.0
	github.com/golang/protobuf v1.3.5
)

replace github.com/basho/backoff => ../backoff
