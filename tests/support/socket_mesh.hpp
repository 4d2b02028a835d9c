#pragma once
// Connections between threads that stand for processes, without a network.

#include <sys/socket.h>

#include <vector>

#include <gtest/gtest.h>

#include "runtime/rendezvous/socket.hpp"

namespace mgplan::tests {

/// For each rank one connection to each other one; its own place is not open.
[[nodiscard]] inline std::vector<std::vector<runtime::Socket>> socket_mesh(int size) {
    std::vector<std::vector<runtime::Socket>> mesh(static_cast<std::size_t>(size));
    for (auto& row : mesh) row.resize(static_cast<std::size_t>(size));
    for (std::size_t a = 0; a < mesh.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
            int ends[2] = {-1, -1};
            EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
            mesh[a][b] = runtime::Socket(ends[0]);
            mesh[b][a] = runtime::Socket(ends[1]);
        }
    }
    return mesh;
}

}  // namespace mgplan::tests
