module github.com/basho/backoff

go 1.16
