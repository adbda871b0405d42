#include "target-server/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

namespace spate::target_server {
namespace {

using ::testing::HasSubstr;

class Work final : public Pool::Job {
 public:
  explicit Work(std::function<void()> body) : body_(std::move(body)) {}
  void run() noexcept override { body_(); }

 private:
  std::function<void()> body_;
};

std::unique_ptr<Pool> make_pool(const Pool::Options& options) {
  auto pool = Pool::create(options);
  EXPECT_TRUE(pool) << pool.error().message;
  return std::move(*pool);
}

TEST(Pool, StartsNoThreadBeforeThereIsWork) { EXPECT_EQ(make_pool({.threads = 4})->threads(), 0u); }

TEST(Pool, StartsAThreadOnlyWhenNobodyIsIdle) {
  auto pool = make_pool({.threads = 4});
  for (int i = 0; i < 200; ++i) {
    std::latch done(1);
    Work work([&] { done.count_down(); });
    ASSERT_EQ(pool->submit(work), Pool::Submitted::yes);
    done.wait();
    // The thread may not be idle again yet when the next job comes, hence more than one is
    // possible; four at once would need three that are late together.
  }
  EXPECT_LE(pool->threads(), 3u);
}

TEST(Pool, GrowsToItsLimitAndNoFurther) {
  auto pool = make_pool({.threads = 4});
  std::latch four_run(4);
  std::latch release(1);
  std::vector<std::unique_ptr<Work>> jobs;
  std::atomic<int> started{0};
  for (int i = 0; i < 8; ++i) {
    jobs.push_back(std::make_unique<Work>([&] {
      if (started.fetch_add(1) < 4) four_run.count_down();
      release.wait();
    }));
    ASSERT_EQ(pool->submit(*jobs.back()), Pool::Submitted::yes);
  }
  four_run.wait();
  EXPECT_EQ(pool->threads(), 4u);
  EXPECT_EQ(started, 4);
  release.count_down();
  pool->shutdown();
  EXPECT_EQ(started, 8);
}

TEST(Pool, RefusesWhatDoesNotFitTheQueue) {
  auto pool = make_pool({.threads = 1, .queue = 2});
  std::latch running(1);
  std::latch release(1);
  Work blocker([&] {
    running.count_down();
    release.wait();
  });
  std::atomic<int> ran{0};
  Work first([&] { ++ran; });
  Work second([&] { ++ran; });
  Work third([&] { ++ran; });
  ASSERT_EQ(pool->submit(blocker), Pool::Submitted::yes);
  running.wait();
  EXPECT_EQ(pool->submit(first), Pool::Submitted::yes);
  EXPECT_EQ(pool->submit(second), Pool::Submitted::yes);
  EXPECT_EQ(pool->submit(third), Pool::Submitted::queue_full);
  release.count_down();
  pool->shutdown();
  EXPECT_EQ(ran, 2);
}

std::size_t stack_of_a_thread(const Pool::Options& options) {
  auto pool = make_pool(options);
  std::size_t bytes = 0;
  Work work([&] {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* address = nullptr;
    pthread_attr_getstack(&attributes, &address, &bytes);
    pthread_attr_destroy(&attributes);
  });
  EXPECT_EQ(pool->submit(work), Pool::Submitted::yes);
  pool->shutdown();
  return bytes;
}

TEST(Pool, GivesEachThreadTheStackAskedFor) {
  EXPECT_GE(stack_of_a_thread({.stack_bytes = kMinStackBytes}), kMinStackBytes);
  // Ascending: the C library keeps stacks of ended threads and may give a larger one than asked
  // for.
  for (const std::uint64_t bytes : {320'000u, 1u << 20, 16u << 20}) {
    const std::size_t real = stack_of_a_thread({.stack_bytes = bytes});
    EXPECT_GE(real, bytes);
    EXPECT_LT(real, bytes + 4096);
  }
}

TEST(Pool, RunsEverythingQueuedBeforeItEnds) {
  auto pool = make_pool({.threads = 3, .queue = 100'000});
  std::atomic<int> ran{0};
  std::atomic<int> accepted{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> submitters;
  Work work([] {});
  struct Counted final : Pool::Job {
    std::atomic<int>* ran = nullptr;
    void run() noexcept override {
      ++*ran;
      delete this;
    }
  };
  for (int t = 0; t < 3; ++t) {
    submitters.emplace_back([&] {
      while (!stop) {
        auto* job = new Counted;
        job->ran = &ran;
        const auto submitted = pool->submit(*job);
        if (submitted == Pool::Submitted::yes) {
          ++accepted;
        } else {
          delete job;
        }
        if (submitted == Pool::Submitted::stopped) return;
      }
    });
  }
  while (ran < 10'000) std::this_thread::yield();
  pool->shutdown();
  stop = true;
  for (auto& thread : submitters) thread.join();
  EXPECT_EQ(ran, accepted);
  EXPECT_EQ(pool->submit(work), Pool::Submitted::stopped);
}

TEST(Pool, RefusesOptionsOutOfRangeWithTheNumber) {
  EXPECT_THAT(Pool::create({.threads = 0}).error().message, HasSubstr("give 1 to 10000"));
  EXPECT_THAT(Pool::create({.stack_bytes = 16 * 1024}).error().message, HasSubstr("give 64 KiB"));
  EXPECT_THAT(Pool::create({.queue = 0}).error().message, HasSubstr("give 1 or more"));
}

}  // namespace
}  // namespace spate::target_server
