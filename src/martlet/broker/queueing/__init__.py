"""Work queues as this broker serves them: those of the partitions led here, and the doors to them."""
