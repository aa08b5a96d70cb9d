"""All file access of dstl: pictures, transforms and reports."""
