"""What the cluster knows about itself: topics, partitions, brokers, settings, and the decisions that change them.

Pure: nothing here touches a clock, a file, a task or chance. Decisions return the commit to make; the metadata
store's port (`store.py`) says what a commit means, `martlet.stores` implements it, and
`martlet.broker.administration.topic_admin` carries decisions out.
"""
