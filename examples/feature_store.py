"""A feature store: Spark works features out of history and fills a map, a web service reads them one by one.

The write is all or nothing: while it goes on the service answers from the features before, and then from the new ones.
"""

import argparse
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyspark.sql import functions as F

import phalanx
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.spark import session


class Service(BaseHTTPRequestHandler):
    """GET /features/USER"""

    at = ""
    clients = threading.local()

    def do_GET(self) -> None:
        features = self.features().get(self.path.rpartition("/")[2])
        body = json.dumps(features if features is not None else {"error": "no such user"}).encode()
        self.send_response(200 if features is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def features(self) -> SyncMap:
        # A client for each thread: threads that share one wait for each other's calls.
        if not hasattr(self.clients, "grid"):
            self.clients.grid = phalanx.Client(self.at)
        return self.clients.grid.map("features")

    def log_message(self, format: str, *args: object) -> None:
        """Keep the example's output short."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", default="127.0.0.1:5701", help="address of any member")
    Service.at = at = parser.parse_args().at
    spark = session("local[2]")
    payments = spark.range(0, 20_000, 1, 4).select(
        F.concat(F.lit("u"), F.col("id") % 500).alias("user"), (F.col("id") % 97).cast("double").alias("euros")
    )
    features = payments.groupBy("user").agg(
        F.count("*").alias("payments"), F.avg("euros").alias("mean_euros"), F.max("euros").alias("max_euros")
    )
    features.write.format("phalanx").options(members=at, map="features", key="user").mode("overwrite").save()
    spark.stop()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/features"
    with urllib.request.urlopen(f"{url}/u42", timeout=30) as answer:
        print("features of u42:", answer.read().decode())
    server.shutdown()


if __name__ == "__main__":
    main()
