"""The operator: kopf handlers queue what changed, one level-triggered reconcile a kind acts."""
