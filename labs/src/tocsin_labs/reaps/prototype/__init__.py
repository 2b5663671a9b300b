"""The prototype of the REAPS paper (section VI.A), measured on real processes: Figs 3a and 3b.

One network is started, with two clusters of two brokers, and the application of ``lab.reaps.scene``. Subscribers come
in waves, as many at the broker that fails as in the paper: 23, 50, 74, 97. In each wave that broker fails and returns,
again and again, in several ways:

- **migration**: it is asked to stop (SIGTERM), and sends its clients elsewhere;
- **local**: it is killed (SIGKILL), and the other broker of its cluster stands in for it;
- **remote**: the same, while that other broker is down: nobody but a broker of the other cluster can;
- **frozen** and **frozen remote**: it is stopped where it is (SIGSTOP), and its connections stay open.

Each time a storm over the whole city is about to be told of: the broker is ended when the results are there, and before
it has told anybody. A subscriber has the client's default keep-alive. It is *served again* when a broker has taken its
session, and *told* when its program was given the storm. At the end what was committed for everybody is held against
what everybody got.

| module | what it is |
| --- | --- |
| ``plan`` | how many subscribers, how often; who is at home where in each wave |
| ``failing`` | one failure on a scene, from what has to be true before to what has to be true after |
| ``outcome`` | what is known of one failure, and of all with as many subscribers; a line through them |
| ``tables`` | paper, ours, ratio; the paper's statements |
| ``plots``, ``run`` | pictures; all of it, and what is written down |
"""
