#include "agent/worker.h"

#include <pthread.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "agent/worker_loop.h"

namespace spate::agent {

Worker::Worker(std::uint32_t index, std::shared_ptr<const Assignment> assignment,
               WorkerCallbacks callbacks, std::shared_ptr<SlotRing> ring)
    : loop_(std::make_unique<WorkerLoop>(index, std::move(assignment), std::move(callbacks),
                                         std::move(ring))),
      thread_([loop = loop_.get(), index] {
        pthread_setname_np(pthread_self(), ("worker-" + std::to_string(index)).c_str());
        loop->run();
      }) {}

Worker::~Worker() {
  boost::asio::post(loop_->io(), [loop = loop_.get()] { loop->shut_down(); });
  thread_.join();
}

void Worker::open() {
  boost::asio::post(loop_->io(), [loop = loop_.get()] { loop->open(); });
}

void Worker::start_at(Instant t0, Instant begin) {
  boost::asio::post(loop_->io(), [loop = loop_.get(), t0, begin] { loop->start_at(t0, begin); });
}

void Worker::join(std::shared_ptr<const Assignment> assignment, Instant t0, Instant begin) {
  boost::asio::post(loop_->io(), [loop = loop_.get(), a = std::move(assignment), t0, begin] {
    loop->join(a, t0, begin);
  });
}

void Worker::change(std::shared_ptr<const Assignment> next, Instant at) {
  loop_->order(std::move(next), at);
  boost::asio::post(loop_->io(), [loop = loop_.get()] { loop->heed(); });
}

void Worker::lease(Instant end) {
  loop_->lease(end);
  boost::asio::post(loop_->io(), [loop = loop_.get()] { loop->heed(); });
}

void Worker::stop(Instant at, Duration drain) {
  boost::asio::post(loop_->io(), [loop = loop_.get(), at, drain] { loop->stop(at, drain); });
}

void Worker::set_drain(Duration drain) {
  boost::asio::post(loop_->io(), [loop = loop_.get(), drain] { loop->set_drain(drain); });
}

}  // namespace spate::agent
