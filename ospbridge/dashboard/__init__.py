"""One page that shows what a daemon does, for whoever looks over from the desk. It changes nothing.

What it shows it is told by a ``Source``; of the daemon itself it knows nothing. The extra ``[dashboard]`` brings the
web server, which is imported when a dashboard is opened.
"""
