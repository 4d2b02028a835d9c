#include "planner/run_parallel.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::planner {

void run_parallel(std::size_t parts, std::size_t thread_count, const std::function<void(std::size_t part, std::size_t thread)>& work,
                  const std::function<void(std::size_t, std::size_t)>& progress) {
    std::atomic<std::size_t> next{0}, done{0};
    std::exception_ptr failure;
    std::mutex mutex;
    std::condition_variable finished;
    std::size_t running = thread_count;
    const auto run = [&](std::size_t thread) {
        try {
            for (std::size_t part = next++; part < parts; part = next++) {
                work(part, thread);
                ++done;
            }
        } catch (...) {
            const std::scoped_lock lock(mutex);
            if (!failure) failure = std::current_exception();
            next = parts;
        }
        const std::scoped_lock lock(mutex);
        --running;
        finished.notify_one();
    };
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < thread_count; ++thread) {
        try {
            threads.emplace_back(run, thread);
        } catch (const std::system_error& error) {
            // The system gives no more threads; those there are do the work.
            const std::scoped_lock lock(mutex);
            running -= thread_count - thread;
            if (thread == 0)
                throw RunError(fmt::format("out of memory on this machine, or of processes: no thread can be started ({})", error.what()));
            break;
        } catch (...) {
            next = parts;  // out of memory: the threads there are finish the parts that they have
            throw;
        }
    }
    {
        std::unique_lock lock(mutex);
        while (!finished.wait_for(lock, std::chrono::seconds(1), [&] { return running == 0; })) {
            if (!progress) continue;
            try {
                progress(done, parts);
            } catch (...) {
                if (!failure) failure = std::current_exception();
                next = parts;  // the threads finish their current parts
            }
        }
    }
    threads.clear();  // joins
    if (failure) std::rethrow_exception(failure);
}

}  // namespace mgplan::planner
