"""The other gatherers of bench/reap: Scrapy as it comes, Scrapy tuned, and wget2 as the floor in C.

    python bench/reap_others.py default|tuned FILE     run Scrapy on the URLs of FILE; prints how many pages it got

Both spiders obey robots.txt and follow every link that LinkExtractor finds; neither stores anything, which favours them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TUNED: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 256,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "REFERER_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
    "DOWNLOAD_TIMEOUT": 30,
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "SPIDER_MIDDLEWARES": {
        "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": None,
        "scrapy.spidermiddlewares.referer.RefererMiddleware": None,
        "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
        "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
    },
    "EXTENSIONS": {
        "scrapy.extensions.corestats.CoreStats": None,
        "scrapy.extensions.memusage.MemoryUsage": None,
        "scrapy.extensions.logstats.LogStats": None,
        "scrapy.extensions.feedexport.FeedExporter": None,
    },
}
DEFAULT: dict[str, Any] = {"LOG_LEVEL": "INFO", "REACTOR_THREADPOOL_MAXSIZE": 10}
FAIR = {"ROBOTSTXT_OBEY": True, "DOWNLOAD_DELAY": 0, "USER_AGENT": "shepherd-bench (+https://bench.example/)"}


def main() -> None:
    import scrapy
    from scrapy.crawler import CrawlerProcess
    from scrapy.http import HtmlResponse
    from scrapy.linkextractors import LinkExtractor

    kind, starts = sys.argv[1], Path(sys.argv[2]).read_text().split()
    got = {"pages": 0, "links": 0}

    class Spider(scrapy.Spider):
        name = "bench"

        async def start(self) -> Any:
            for url in starts:
                yield scrapy.Request(url, callback=self.parse)

        def parse(self, response: Any, **_: Any) -> Any:
            if not isinstance(response, HtmlResponse):
                return
            got["pages"] += 1
            for link in LinkExtractor().extract_links(response):
                got["links"] += 1
                yield scrapy.Request(link.url, callback=self.parse)

    process = CrawlerProcess(FAIR | (TUNED if kind == "tuned" else DEFAULT))
    process.crawl(Spider)
    process.start()
    print(json.dumps(got))


if __name__ == "__main__":
    main()
