"""Pipelines on Spark: the ready ones, those of a user's file, and the runner under both.

A pipeline is a module with a function `start(run, options)`: it reads topics through `run`, transforms DataFrames with
plain functions, and hands the results to `run` to be written. A user's file is the same with less ceremony:

    from martlet.spark.pipelines import flow

    @flow(reads="orders", writes="large-orders")
    def large(orders):
        return orders.where("get_json_object(string(value), '$.amount') > 1000")

Importing this package imports no Spark, because the command line does it for every `--help`.
"""

from martlet.spark.pipelines.user_flow import LakeTarget, flow, lake_table

__all__ = ["LakeTarget", "flow", "lake_table"]
