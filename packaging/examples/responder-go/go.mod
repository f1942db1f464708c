module responder

go 1.21
