"""One exchange with a server: address, guard, libcurl, limits. The only place that knows pycurl."""
