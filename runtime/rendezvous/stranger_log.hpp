#pragma once
// Connections to the rendezvous port that are no rank of the job: counted, and named by address if ranks are missing.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/rendezvous/socket.hpp"

namespace mgplan::runtime {

class StrangerLog {
public:
    enum class Kind : std::uint8_t { wrong_secret, no_greeting, silent };

    void note(Kind kind, const Address& from);
    /// "; 2 had another MGPLAN_SECRET (from 10.0.0.7)": a part for each kind there was, "" where there was none.
    [[nodiscard]] std::string text() const;

private:
    struct Met {
        std::size_t count = 0;
        std::vector<std::string> hosts;  ///< the first few, each once
    };
    std::array<Met, 3> met_;
};

}  // namespace mgplan::runtime
