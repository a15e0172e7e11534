package e2e

func crowdWorker() bool { return false }
