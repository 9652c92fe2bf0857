module github.com/rocketkeep/reconcile

go 1.26
