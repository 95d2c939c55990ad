# The examples as an image: worker, beat and Flower are the same one with another command.
FROM python:3.12-slim

COPY . /src
RUN pip install --no-cache-dir "/src[flower,metrics]"

# Nothing here needs to be root, and beat writes no file.
RUN useradd --create-home celery
USER celery
WORKDIR /src/examples
