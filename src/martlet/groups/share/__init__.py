"""Share groups (KIP-932): who is a member and which partitions each may fetch from; leases are `queues`' business."""
