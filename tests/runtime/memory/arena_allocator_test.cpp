#include "runtime/memory/arena_allocator.hpp"

#include <algorithm>
#include <functional>
#include <new>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "runtime/sanitizers.hpp"

namespace mgplan::runtime::arena_allocator_test {
namespace {

using model::MemoryCategory;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kActivations = MemoryCategory::activations;

/// Weights, and steps that take x, then something of unknown size, then y in the place of x, beside z.
ArenaScript script() {
    ArenaScript script;
    script.construction = {{"weights", MemoryCategory::parameters, 1000, 0}};
    script.step = {{"x", kActivations, 500, 1024},
                   {"rows", kActivations, 64, ArenaTake::kElsewhere},
                   {"y", kActivations, 300, 1024},
                   {"z", MemoryCategory::workspace, 256, 1536}};
    script.bytes = 1792;
    script.lower_bound = 1556;
    return script;
}

std::string message_of(const std::function<void()>& act) {
    try {
        act();
    } catch (const RunError& error) {
        return error.what();
    }
    return "nothing thrown";
}

TEST(ArenaAllocator, PutsEachTakeOfEveryStepWhereTheScriptSays) {
    const ArenaScript planned = script();
    ArenaAllocator arena(planned);
    std::byte* const weights = arena.take(1000, MemoryCategory::parameters, "weights");
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(weights) % 64, 0U);
    EXPECT_EQ(arena.touched_bytes(), 1024);
    for (int step = 0; step < 3; ++step) {
        arena.begin_step();
        std::byte* const x = arena.take(500, kActivations, "x");
        EXPECT_EQ(x - weights, 1024);
        std::byte* const rows = arena.take(100 + step, kActivations, "rows");
        EXPECT_TRUE(rows < weights || rows >= weights + planned.bytes);
        arena.give_back(x, 500, kActivations);
        std::byte* const y = arena.take(300, kActivations, "y");
        EXPECT_EQ(y, x);
        std::byte* const z = arena.take(256, MemoryCategory::workspace, "z");
        EXPECT_EQ(z - weights, 1536);
        arena.give_back(y, 300, kActivations);
        arena.give_back(rows, 100 + step, kActivations);
        arena.give_back(z, 256, MemoryCategory::workspace);
        arena.end_step();
    }
    EXPECT_EQ(arena.touched_bytes(), planned.bytes);
    EXPECT_EQ(arena.fallback_bytes(), PoolAllocator::block_bytes_for(102));
    EXPECT_EQ(arena.reserved_bytes(), arena.touched_bytes() + arena.fallback_bytes());
    EXPECT_THAT(arena.use().current, testing::ElementsAre(1000, 0, 0, 0, 0, 0));
    EXPECT_THAT(arena.use().high_water, testing::ElementsAre(1000, 0, 0, 602, 0, 256));
    EXPECT_EQ(arena.use().peak, 1000 + 300 + 102 + 256);
    arena.give_back(weights, 1000, MemoryCategory::parameters);
}

TEST(ArenaAllocator, TakesWhatIsOutsideConstructionAndStepsFromThePool) {
    const ArenaScript planned = script();
    ArenaAllocator arena(planned);
    std::byte* const weights = arena.take(1000, MemoryCategory::parameters, "weights");
    std::byte* const before = arena.take(70, kActivations, "observer");
    EXPECT_EQ(arena.touched_bytes(), 1024);
    EXPECT_EQ(arena.fallback_bytes(), 128);
    arena.give_back(before, 70, kActivations);
    arena.begin_step();
    arena.end_step();
    arena.give_back(arena.take(500, kActivations, "x"), 500, kActivations);
    EXPECT_EQ(arena.touched_bytes(), 1024) << "no step runs";
    arena.give_back(weights, 1000, MemoryCategory::parameters);
}

TEST(ArenaAllocator, ForgivesMissingRowsAndStepsThatEndEarly) {
    const ArenaScript planned = script();
    ArenaAllocator arena(planned);
    arena.begin_step();
    arena.give_back(arena.take(500, kActivations, "x"), 500, kActivations);
    arena.give_back(arena.take(300, kActivations, "y"), 300, kActivations);  // no rows came
    arena.begin_step();                                                      // z was never taken
    arena.give_back(arena.take(500, kActivations, "x"), 500, kActivations);
    EXPECT_EQ(arena.fallback_bytes(), 0);
}

TEST(ArenaAllocator, RefusesWhatWasNotPlannedAndNamesBoth) {
    const ArenaScript planned = script();
    ArenaAllocator arena(planned);
    const auto first_of_step = [&](std::int64_t bytes, MemoryCategory category, std::string_view name) {
        return message_of([&] {
            arena.begin_step();
            static_cast<void>(arena.take(bytes, category, name));
        });
    };
    EXPECT_THAT(first_of_step(501, kActivations, "x"), AllOf(HasSubstr("allocation 1 of the step is \"x\" (activations, 501 bytes)"),
                                                             HasSubstr("\"x\" (activations, 500 bytes)"), HasSubstr("--memory pool")));
    EXPECT_THAT(first_of_step(500, MemoryCategory::workspace, "x"), HasSubstr("\"x\" (workspace, 500 bytes)"));
    EXPECT_THAT(first_of_step(300, kActivations, "y"), HasSubstr("\"y\" (activations, 300 bytes)"));
    const std::string behind = message_of([&] {
        arena.begin_step();
        arena.give_back(arena.take(500, kActivations, "x"), 500, kActivations);
        arena.give_back(arena.take(300, kActivations, "y"), 300, kActivations);
        arena.give_back(arena.take(256, MemoryCategory::workspace, "z"), 256, MemoryCategory::workspace);
        static_cast<void>(arena.take(10, kActivations, "more"));
    });
    EXPECT_THAT(behind, AllOf(HasSubstr("ends behind 4 allocations"), HasSubstr("\"more\"")));
    EXPECT_THAT(arena.use().current, testing::Each(0)) << "what was refused does not count";
}

TEST(ArenaAllocator, RefusesAPlaceThatIsTakenOrOutside) {
    ArenaScript wrong;
    wrong.step = {{"a", kActivations, 300, 0}, {"b", kActivations, 10, 256}, {"c", kActivations, 10, 512}};
    wrong.bytes = 512;
    ArenaAllocator arena(wrong);
    arena.begin_step();
    std::byte* const a = arena.take(300, kActivations, "a");
    EXPECT_THAT(message_of([&] { static_cast<void>(arena.take(10, kActivations, "b")); }),
                AllOf(HasSubstr("\"b\""), HasSubstr("another tensor lives")));
    EXPECT_THAT(message_of([&] { static_cast<void>(arena.take(10, kActivations, "c")); }), HasSubstr("the arena ends"));
    arena.give_back(a, 300, kActivations);
}

TEST(ArenaAllocator, TellsItsSourceWhatMayBeTouchedAndTakesOneBlock) {
    class Watched final : public BlockSource {
    public:
        std::vector<std::pair<char, std::int64_t>> calls;
        void* take(std::int64_t bytes) noexcept override {
            calls.emplace_back('t', bytes);
            return host_blocks().take(bytes);
        }
        void give_back(void* block, std::int64_t bytes) noexcept override {
            calls.emplace_back('g', bytes);
            host_blocks().give_back(block, bytes);
        }
        void spoil(void* /*block*/, std::int64_t /*bytes*/) noexcept override {}
        bool is_spoiled(const void* /*block*/, std::int64_t /*bytes*/) noexcept override { return true; }
        void allow(void* /*memory*/, std::int64_t bytes) noexcept override { calls.emplace_back('+', bytes); }
        void forbid(void* /*memory*/, std::int64_t bytes) noexcept override { calls.emplace_back('-', bytes); }
    } source;
    const ArenaScript planned = script();
    {
        ArenaAllocator arena(planned, source);
        arena.begin_step();
        arena.give_back(arena.take(500, kActivations, "x"), 500, kActivations);
    }
    EXPECT_THAT(source.calls, testing::ElementsAre(std::pair('t', 1792), std::pair('-', 1792), std::pair('+', 500), std::pair('-', 512),
                                                   std::pair('g', 1792)));
}

TEST(ArenaAllocator, ThrowsWhenThereIsNoMemory) {
    class Empty final : public BlockSource {
        void* take(std::int64_t /*bytes*/) noexcept override { return nullptr; }
        void give_back(void* /*block*/, std::int64_t /*bytes*/) noexcept override {}
        void spoil(void* /*block*/, std::int64_t /*bytes*/) noexcept override {}
        bool is_spoiled(const void* /*block*/, std::int64_t /*bytes*/) noexcept override { return true; }
    } source;
    const ArenaScript planned = script();
    EXPECT_THROW(ArenaAllocator(planned, source), std::bad_alloc);
}

#ifdef MGPLAN_ADDRESS_SANITIZER
TEST(ArenaAllocatorDeathTest, ShowsTheSanitizerWhatIsUsedAfterItsEndOrPastIt) {
    const ArenaScript planned = script();
    ArenaAllocator arena(planned);
    arena.begin_step();
    std::byte* const memory = arena.take(500, kActivations, "x");
    const volatile std::byte* const read = memory;
    (void)read[499];
    EXPECT_DEATH((void)read[500], "use-after-poison");
    EXPECT_DEATH((void)read[-1], "use-after-poison");
    arena.give_back(memory, 500, kActivations);
    EXPECT_DEATH((void)read[0], "use-after-poison");
}
#endif

// What a graph left is let go of by code outside of it: its guard was never filled, and holds what earlier tensors wrote.
TEST(ArenaAllocator, AsksNothingOfAGuardThatItDidNotFill) {
    ArenaScript guarded;
    guarded.guard = 256;
    guarded.step = {{"within a graph", kActivations, 700, 0}, {"output of a graph", kActivations, 256, 0}};
    guarded.bytes = 1024;
    ArenaAllocator arena(guarded);
    arena.begin_step();
    arena.keep_contents(true);
    std::byte* const within = arena.take(700, kActivations, "within a graph");
    std::fill_n(within, 700, std::byte{7});
    arena.give_back(within, 700, kActivations);
    std::byte* const output = arena.take(256, kActivations, "output of a graph");
    arena.keep_contents(false);
    arena.give_back(output, 256, kActivations);
    EXPECT_NO_THROW(arena.end_step());
}

TEST(ArenaAllocator, TellsOfWritesBehindATensorWhereItHasGuards) {
    ArenaScript guarded;
    guarded.guard = 256;
    guarded.step = {{"x", kActivations, 500, 0}, {"y", kActivations, 300, 768}};
    guarded.bytes = 1536;
    for (const std::int64_t beyond : {0, 11, 12, 200}) {
        ArenaAllocator arena(guarded);
        arena.begin_step();
        std::byte* const x = arena.take(500, kActivations, "x");
        EXPECT_EQ(x[499], std::byte{0xff});
#ifdef MGPLAN_ADDRESS_SANITIZER
        if (beyond > 0) {  // the sanitizer would see it first
            arena.give_back(x, 500, kActivations);
            break;
        }
#endif
        std::fill_n(x, 500 + beyond, std::byte{7});
        arena.give_back(x, 500, kActivations);
        if (beyond == 0) {
            arena.end_step();
            continue;
        }
        EXPECT_THAT(message_of([&] { static_cast<void>(arena.take(300, kActivations, "y")); }),
                    AllOf(HasSubstr("behind the tensor of 500 bytes"), HasSubstr("at byte 0 of the arena")));
    }
}

}  // namespace
}  // namespace mgplan::runtime::arena_allocator_test
