"""The page in headless Chromium against a real server: crates/page/tests/browser.py does the driving."""

import os
import subprocess
import sys

from serving import Server, given

BROWSER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/page/tests/browser.py")

if __name__ == "__main__":
    with Server() as server:
        pictures = os.path.join(given().out, "screenshots")
        sys.exit(subprocess.call([sys.executable, BROWSER, server.url, pictures]))
